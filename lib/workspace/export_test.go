package workspace

// WithoutOpenat2 makes a workspace work as on a kernel without it.
func WithoutOpenat2(w *LocalWorkspace) { w.tree.opener.Openat2 = false }

// WithoutExchange makes a workspace work as on a file system without RENAME_EXCHANGE.
func WithoutExchange(w *LocalWorkspace) { w.tree.noExchange = true }

// WithoutUnnamed makes a workspace work as on a file system without O_TMPFILE.
func WithoutUnnamed(w *LocalWorkspace) { w.tree.noUnnamed = true }

// AtSteps calls fn at each step of a Swap.
func AtSteps(w *LocalWorkspace, fn func(step string)) { w.tree.step = fn }
