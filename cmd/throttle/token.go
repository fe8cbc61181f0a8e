package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// mostToken is how many bytes a token file may have.
const mostToken = 4096

// readToken returns the token in a file or, where there is no --token-file, in a variable of the
// environment; "": there is none. No error repeats it.
func readToken(file, variable string) (string, error) {
	if file == "" {
		return os.Getenv(variable), nil
	}

	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}

	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("--token-file: %s is empty", file)
	case len(text) > mostToken:
		return "", fmt.Errorf("--token-file: %s is no token, but %d bytes", file, len(text))
	}

	return token, nil
}

// isLoose reports whether others than the owner and the group may read a token file, or others than the owner may write
// the file.
func isLoose(file string) bool {
	if file == "" || runtime.GOOS == "windows" {
		return false
	}
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o026 != 0
}
