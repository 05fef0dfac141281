package recipes

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// withRegistry as first argument makes the test binary serve packages on the
// loopback of its machine, as registries do, while it runs a command.
const withRegistry = "with-registry"

// Where the packages are served, inside a machine.
const (
	registryAddress = "127.0.0.1:4873"
	npmRegistry     = "http://" + registryAddress + "/npm/"
	goProxy         = "http://" + registryAddress + "/go"
	servedFiles     = "http://" + registryAddress + "/files" // what a project has in its directory served
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == withRegistry {
		os.Exit(serveAround(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// serveAround serves while argv runs, and returns its status.
func serveAround(argv []string) int {
	listener, err := net.Listen("tcp", registryAddress)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	mux := http.NewServeMux()
	mux.Handle("/go/", http.StripPrefix("/go", http.FileServer(http.Dir(registry+"/go"))))
	mux.Handle("/npm/-/", http.StripPrefix("/npm/-", http.FileServer(http.Dir(registry+"/npm"))))
	mux.HandleFunc("/npm/{name...}", packument)
	mux.Handle("/files/", http.StripPrefix("/files", http.FileServer(http.Dir("served"))))
	go http.Serve(listener, mux)

	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// packument answers with the versions of an npm package: one.
func packument(w http.ResponseWriter, r *http.Request) {
	tarballs, _ := filepath.Glob(registry + "/npm/*.tgz")
	for _, path := range tarballs {
		manifest, err := readManifest(path)
		if err != nil || manifest["name"] != r.PathValue("name") {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			break
		}
		sum := sha512.Sum512(content)
		manifest["dist"] = map[string]any{
			"tarball":   npmRegistry + "-/" + filepath.Base(path),
			"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			"shasum":    fmt.Sprintf("%x", sha1.Sum(content)), // yarn 1 calls its copies by it
		}
		version := manifest["version"].(string)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name":      manifest["name"],
			"dist-tags": map[string]any{"latest": version},
			"versions":  map[string]any{version: manifest},
		})
		return
	}
	http.NotFound(w, r)
}

// readManifest returns the package.json of a tarball.
func readManifest(path string) (map[string]any, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if err != nil {
			return nil, err
		}
		if header.Name != "package/package.json" {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		manifest := map[string]any{}
		return manifest, json.Unmarshal(content, &manifest)
	}
}
