package seccomp

// Call is a system call that a filter of Tracing stops for a tracer.
type Call struct {
	Name    string
	Paths   []Path
	Flags   int  // the argument that makes a file if it has O_CREAT; 0 for none
	Address bool // it connects to a socket address
}

// Path is a path among the arguments of a call, by their numbers.
type Path struct {
	Dir     int // of the directory's descriptor; noDir for the working directory
	At      int
	Creates bool // the call makes something there
}

// noDir says that a call takes relative paths from the working directory.
const noDir = -1

// WorkingDir reports whether relative paths begin in the working directory.
func (p Path) WorkingDir() bool { return p.Dir == noDir }

// Traced is the call that a filter of Tracing has stopped. data is the filter's answer
// (SECCOMP_RET_DATA); the file is the command's, and the number the kernel's.
func Traced(data uint32) (Call, bool) {
	if data == 0 || int(data) > len(traced) {
		return Call{}, false
	}
	return traced[data-1].Call, true
}

// Tracing returns the Filter of a sandbox with a tracer (PTRACE_O_TRACESECCOMP): it stops
// for calls with paths or addresses. Without the tracer these fail with ENOSYS.
func Tracing(nested bool) ([]byte, error) { return encode(policy(nested), traced...) }

type tracedCall struct {
	Call
	number [4]uint32 // by ABI, as in a rule
}

// one is a call with a path at an argument, from the working directory.
func one(name string, at int, number [4]uint32) tracedCall {
	return tracedCall{Call{Name: name, Paths: []Path{{noDir, at, false}}}, number}
}

// at is a call with a descriptor of a directory, and the path behind it.
func at(name string, dir int, number [4]uint32) tracedCall {
	return tracedCall{Call{Name: name, Paths: []Path{{dir, dir + 1, false}}}, number}
}

// creates is a call that makes its last path.
func (t tracedCall) creates() tracedCall {
	t.Paths[len(t.Paths)-1].Creates = true
	return t
}

func (t tracedCall) flags(argument int) tracedCall {
	t.Flags = argument
	return t
}

// and adds a path.
func (t tracedCall) and(dir, at int) tracedCall {
	t.Paths = append(t.Paths, Path{dir, at, false})
	return t
}

var traced = []tracedCall{
	one("open", 0, [4]uint32{2, 5, missing, 5}).flags(1),
	at("openat", 0, [4]uint32{257, 295, 56, 322}).flags(2),
	at("openat2", 0, [4]uint32{437, 437, 437, 437}),
	one("creat", 0, [4]uint32{85, 8, missing, 8}).creates(),
	one("access", 0, [4]uint32{21, 33, missing, 33}),
	at("faccessat", 0, [4]uint32{269, 307, 48, 334}),
	at("faccessat2", 0, [4]uint32{439, 439, 439, 439}),
	one("stat", 0, [4]uint32{4, 106, missing, 106}),
	one("lstat", 0, [4]uint32{6, 107, missing, 107}),
	one("stat64", 0, [4]uint32{missing, 195, missing, 195}),
	one("lstat64", 0, [4]uint32{missing, 196, missing, 196}),
	at("newfstatat", 0, [4]uint32{262, missing, 79, missing}),
	at("fstatat64", 0, [4]uint32{missing, 300, missing, 327}),
	at("statx", 0, [4]uint32{332, 383, 291, 397}),
	one("readlink", 0, [4]uint32{89, 85, missing, 85}),
	at("readlinkat", 0, [4]uint32{267, 305, 78, 332}),
	one("execve", 0, [4]uint32{59, 11, 221, 11}),
	at("execveat", 0, [4]uint32{322, 358, 281, 387}),
	one("chdir", 0, [4]uint32{80, 12, 49, 12}),
	one("statfs", 0, [4]uint32{137, 99, 43, 99}),
	one("statfs64", 0, [4]uint32{missing, 268, missing, 266}),
	one("mkdir", 0, [4]uint32{83, 39, missing, 39}).creates(),
	at("mkdirat", 0, [4]uint32{258, 296, 34, 323}).creates(),
	one("mknod", 0, [4]uint32{133, 14, missing, 14}).creates(),
	at("mknodat", 0, [4]uint32{259, 297, 33, 324}).creates(),
	one("symlink", 1, [4]uint32{88, 83, missing, 83}).creates(),
	at("symlinkat", 1, [4]uint32{266, 304, 36, 331}).creates(),
	one("link", 0, [4]uint32{86, 9, missing, 9}).and(noDir, 1).creates(),
	at("linkat", 0, [4]uint32{265, 303, 37, 330}).and(2, 3).creates(),
	one("rename", 0, [4]uint32{82, 38, missing, 38}).and(noDir, 1).creates(),
	at("renameat", 0, [4]uint32{264, 302, 38, 329}).and(2, 3).creates(),
	at("renameat2", 0, [4]uint32{316, 353, 276, 382}).and(2, 3).creates(),
	one("rmdir", 0, [4]uint32{84, 40, missing, 40}),
	one("unlink", 0, [4]uint32{87, 10, missing, 10}),
	at("unlinkat", 0, [4]uint32{263, 301, 35, 328}),
	one("chmod", 0, [4]uint32{90, 15, missing, 15}),
	at("fchmodat", 0, [4]uint32{268, 306, 53, 333}),
	at("fchmodat2", 0, [4]uint32{452, 452, 452, 452}),
	one("chown", 0, [4]uint32{92, 182, missing, 182}),
	one("chown32", 0, [4]uint32{missing, 212, missing, 212}),
	one("lchown", 0, [4]uint32{94, 16, missing, 16}),
	one("lchown32", 0, [4]uint32{missing, 198, missing, 198}),
	at("fchownat", 0, [4]uint32{260, 298, 54, 325}),
	one("truncate", 0, [4]uint32{76, 92, 45, 92}),
	one("truncate64", 0, [4]uint32{missing, 193, missing, 193}),
	one("utime", 0, [4]uint32{132, 30, missing, missing}),
	one("utimes", 0, [4]uint32{235, 271, missing, 269}),
	at("futimesat", 0, [4]uint32{261, 299, missing, 326}),
	at("utimensat", 0, [4]uint32{280, 320, 88, 348}),
	at("utimensat_time64", 0, [4]uint32{missing, 412, missing, 412}),
	{Call{Name: "connect", Address: true}, [4]uint32{42, 362, 203, 283}},
}
