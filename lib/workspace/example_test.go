package workspace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"pikuri/lib/workspace"
)

// An agent gets a project to work on, except for files that it must not read and files
// that it must not change.
func Example() {
	dir, err := os.MkdirTemp("", "project-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	project, err := workspace.NewLocalWorkspace(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer project.Close()
	files, err := workspace.NewScopedWorkspace(project,
		workspace.WithAllowWrite("src/**", "*.md"),
		workspace.WithDenyRead("**/.env"),
		workspace.WithMandatoryDeny("**/.git"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(workspace.AtomicWrite(ctx, files, "src/main.go", []byte("package main\n")))
	_, err = files.Read(ctx, "../../etc/passwd")
	fmt.Println(err)
	err = files.Write(ctx, "src/.git/hooks/post-merge", []byte("#!/bin/sh\n"))
	fmt.Println(err, errors.Is(err, workspace.ErrAccessDenied))
	found, err := workspace.Glob(ctx, files, "**/*.go")
	fmt.Println(found, err)
	// Output:
	// <nil>
	// cannot read "../../etc/passwd": path traversal denied: it leaves the root through ".."
	// cannot write "src/.git/hooks/post-merge": access denied: mandatory deny true
	// [src/main.go] <nil>
}
