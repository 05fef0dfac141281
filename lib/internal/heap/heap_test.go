package heap

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is allocated after HugePages lies in memory with the kernel's flag "hg"
// (VmFlags in proc_pid_smaps(5)), if the kernel knows huge pages.
func TestHugePages(t *testing.T) {
	if os.Getenv("PK_HEAP_TEST") != "" {
		Prepare()
		b := make([]byte, 1<<20)
		fmt.Println("flags", flagsAt(t, uintptr(unsafe.Pointer(&b[0]))), "end")
		return
	}
	_, err := os.Stat("/sys/kernel/mm/transparent_hugepage")
	for range 8 { // the heap begins elsewhere each time
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHugePages$", "-test.v=false")
		cmd.Env = append(os.Environ(), "PK_HEAP_TEST=1")
		out, failed := cmd.Output()
		require.NoError(t, failed)
		assert.Equal(t, err == nil, strings.Contains(string(out), " hg "), "%s", out)
	}
}

// flagsAt returns the kernel's flags of the memory at an address.
func flagsAt(t *testing.T, address uintptr) string {
	file, err := os.Open("/proc/self/smaps")
	require.NoError(t, err)
	defer file.Close()
	within := false
	for s := bufio.NewScanner(file); s.Scan(); {
		var from, to uintptr
		if n, _ := fmt.Sscanf(s.Text(), "%x-%x ", &from, &to); n == 2 {
			within = from <= address && address < to
		}
		if flags, is := strings.CutPrefix(s.Text(), "VmFlags:"); is && within {
			return flags
		}
	}
	return ""
}
