package workspace

// WithoutOpenat2 has a workspace do as on a kernel without it.
func WithoutOpenat2(w *LocalWorkspace) { w.tree.opener.Openat2 = false }
