package confine

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"pikuri/lib/confine/confinetest"
	"pikuri/lib/internal/fsat"
)

// faults are features that a kernel or a container can lack. A child loses the
// feature, since it cannot get it back, and runs TestChosenResolver.
var faults = map[string]struct {
	setUp   func() error
	openat2 bool // whether the child has openat2
	attr    syscall.SysProcAttr
}{
	"openat2 refused by seccomp": {setUp: forbidOpenat2},
	"no proc":                    {setUp: hideProc, openat2: true, attr: ownMounts},
	"neither": {
		setUp: func() error {
			if err := hideProc(); err != nil {
				return err
			}
			return forbidOpenat2()
		},
		attr: ownMounts,
	},
}

// ownMounts makes the child an ordinary user that may do nothing but mount, in
// namespaces of its own.
var ownMounts = syscall.SysProcAttr{
	Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
	UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
	GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}},
	AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
}

const faultVariable = "PK_TEST_FAULT"

func TestMain(m *testing.M) {
	if fault, ok := faults[os.Getenv(faultVariable)]; ok {
		if err := fault.setUp(); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestFaults(t *testing.T) {
	if os.Getenv(faultVariable) != "" {
		t.Skip("this is the child")
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^(TestChosenResolver|TestUnreadableAncestor)$", "-test.v")
			child.Env = append(os.Environ(), faultVariable+"="+name)
			child.SysProcAttr = &fault.attr
			out, err := child.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "--- PASS: TestChosenResolver")
		})
	}
}

// TestChosenResolver runs the corpus with the resolver that Open chooses.
func TestChosenResolver(t *testing.T) {
	fault, faulty := faults[os.Getenv(faultVariable)]
	want := fault.openat2 || !faulty
	require.Equal(t, want, fsat.Kernel().Openat2)
	for _, c := range confinetest.Load(t, "testdata/path-corpus.json") {
		if c.RunAs != "" { // the test of cmd/pk-resolve runs this one as another user
			continue
		}
		// With an empty /proc, the paths of these are missing, and harmless.
		if len(c.Readable) > 0 && strings.HasSuffix(c.Readable[0], "/proc") && !exist("/proc/self") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) { replay(t, c, fsat.Kernel().Openat2) })
	}
	base := confinetest.Tree(t, "proj/d/f", "proj/l => {base}/proj/d", "out/")
	w, err := Open(Config{ProjectRoot: base + "/proj"})
	require.NoError(t, err)
	defer w.Close()
	assert.Equal(t, want, w.view.opener.Openat2)
	file, err := w.OpenFile("l/f", os.O_RDWR, 0)
	require.NoError(t, err)
	assert.NoError(t, file.Close())
}

func exist(path string) bool { return unix.Access(path, unix.F_OK) == nil }

// Behind a directory that may not be searched there may be a link to anywhere.
func TestUnreadableAncestor(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may search everything; a child of TestFaults may not")
	}
	base := confinetest.Tree(t, "proj/closed/l => ../../out", "proj/closed/d/f", "proj/in => closed/d", "ro/", "rw/", "out/")
	require.NoError(t, os.Chmod(base+"/proj/closed", 0))
	defer func() { require.NoError(t, os.Chmod(base+"/proj/closed", 0o755)) }()
	everyWay(t, func(t *testing.T, openat2 bool) {
		w := workspace(t, base, openat2)
		for _, path := range []string{"closed/l", "closed/l/x", "closed/d/f", "closed/none", "in", "in/f", "closed/d/../../x"} {
			for _, mode := range []Mode{Read, Write} {
				where, err := w.Resolve(path, mode)
				assert.ErrorIs(t, err, unix.EACCES, path)
				assert.Empty(t, where)
				_, err = w.Batch(Request{Mode: mode}).Resolve(path)
				assert.ErrorIs(t, err, unix.EACCES, path)
			}
		}
		where, err := w.Resolve("closed", Read)
		require.NoError(t, err)
		assert.Equal(t, base+"/proj/closed", where)
	})
}

// forbidOpenat2 makes openat2 fail as a container's filter does that was written
// before there was one.
func forbidOpenat2() error {
	const numberOffset = 0 // of struct seccomp_data
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: numberOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_OPENAT2, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}

// hideProc puts an empty directory over /proc.
func hideProc() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("none", "/proc", "tmpfs", unix.MS_RDONLY, "")
}
