package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// mostToken is how many bytes of a token file are read.
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
	if token == "" || len(text) > mostToken {
		return "", errors.New("--token-file: " + file + " has no token: \"openssl rand -hex 32\" prints one")
	}
	return token, nil
}
