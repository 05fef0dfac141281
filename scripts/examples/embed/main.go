// Command embed is a Go program that uses pk's packages: it writes a file of the project,
// and runs a command in a sandbox that sees it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"pikuri/lib/sandbox"
	"pikuri/lib/workspace"
)

func main() {
	sandbox.Main() // the program starts itself again as the helpers of the sandbox
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, project string) error {
	files, err := workspace.NewLocalWorkspace(project)
	if err != nil {
		return err
	}
	defer files.Close()
	if err := files.Write(ctx, "greeting", []byte("hello\n")); err != nil {
		return err
	}
	runner, err := sandbox.NewBwrapRunner(sandbox.BwrapConfig{Root: project, Bwrap: os.Getenv("BWRAP")})
	if err != nil {
		return err
	}
	defer runner.Close()
	result, err := runner.Exec(ctx, "cat", []string{"greeting"}, sandbox.ExecOptions{Net: sandbox.NetPolicy{Mode: sandbox.NetDenyAll}})
	if err != nil {
		return err
	}
	fmt.Printf("%s%d\n", result.Stdout, result.ExitCode)
	return nil
}
