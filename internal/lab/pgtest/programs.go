package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// programs returns the folder of initdb and postgres: the folder POSTGRES_BIN, or the newest version's.
func programs() (string, error) {
	var folders []string
	if bin := os.Getenv("POSTGRES_BIN"); bin != "" {
		folders = []string{bin}
	} else {
		for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/libexec/postgresql*", "/opt/homebrew/opt/postgresql@*/bin"} {
			found, _ := filepath.Glob(pattern) // the patterns are good
			slices.Reverse(found)
			folders = append(folders, found...)
		}

		if path, err := exec.LookPath("initdb"); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}

	for _, bin := range folders {
		if isProgram(bin, "initdb") && isProgram(bin, "postgres") {
			return bin, nil
		}
	}

	return "", errors.New("pgtest: no initdb and postgres: run `make postgres`, or install PostgreSQL " +
		"(apt-get install postgresql, brew install postgresql@17, apk add postgresql), or name their folder in POSTGRES_BIN")
}

func isProgram(bin, name string) bool {
	_, err := exec.LookPath(filepath.Join(bin, name))
	return err == nil
}
