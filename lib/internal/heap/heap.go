// Package heap makes memory cheap for a program that lives for milliseconds. The start of a
// sandbox touches some 3 MB, and the landing of a commit in a repository of 20 000 files as
// much again: a page fault for each 4 kB, which in some virtual machines takes longer than all
// else that the program does.
package heap

import (
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// chunk is by how much Go's heap grows, and to what it is aligned (pallocChunkBytes in
// runtime/mpagealloc.go).
const chunk = 4 << 20

// Large is how much memory is worth HugePages.
const Large = 512 << 10

// gcPercent has the first garbage collection at 18 MB: one would take as long as the landing
// of a commit. A start stays below 4 MB and the landing of a commit in a repository of 20 000
// files below 8 MB, and each call of HugePages may take 4 MB of addresses. A loop that keeps
// 8 MB of output stays below 64 MB.
const gcPercent = 450

// Prepare is for the beginning of a program. A second call does nothing.
var Prepare = sync.OnceFunc(func() {
	debug.SetGCPercent(gcPercent)
	HugePages()
})

// HugePages has what the program allocates next, some 4 MB, backed by huge pages (madvise(2)):
// two page faults instead of a thousand. Go itself asks for none
// (https://go.dev/doc/gc-guide#Linux_transparent_huge_pages). Where the kernel has none, and
// with a Go whose heap grows otherwise, all is as without the call.
//
// A slice that does not fit into the rest of the heap's last chunk makes it grow by another.
// Go places what follows behind the slice, which takes no memory, since nobody touches it.
func HugePages() {
	last := make([]byte, chunk/32) // smaller ones may lie on the stack, or in a gap
	rest := chunk - uintptr(unsafe.Pointer(&last[len(last)-1]))%chunk
	slice := make([]byte, rest+1)
	begin := uintptr(unsafe.Pointer(&slice[rest])) &^ (chunk - 1)
	_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, begin, chunk, unix.MADV_HUGEPAGE)
}
