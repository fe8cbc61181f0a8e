package throttle_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dependencies are all that this module may need, with their licences. A change that
// adds one adds it here, and its commit says why.
var dependencies = map[string]string{
	"github.com/redis/go-redis/v9":          "BSD-2-Clause", // redisstore
	"github.com/hashicorp/go-retryablehttp": "MPL-2.0",      // retry
	"github.com/stretchr/testify":           "MIT",          // tests

	// What those need.
	"github.com/cespare/xxhash/v2":      "MIT",
	"github.com/hashicorp/go-cleanhttp": "MPL-2.0",
	"go.uber.org/atomic":                "MIT",
	"go.yaml.in/yaml/v3":                "MIT and Apache-2.0",
	"golang.org/x/sys":                  "BSD-3-Clause",
}

// phrases are what licences are known by.
var phrases = map[string][]string{
	"MIT":                {"Permission is hereby granted, free of charge"},
	"MIT and Apache-2.0": {"covered by two different licenses: MIT and Apache"},
	"BSD-2-Clause":       {"Redistribution and use in source and binary forms", "this list of conditions and the following disclaimer"},
	"BSD-3-Clause":       {"Redistribution and use in source and binary forms", "used to endorse or promote products"},
	"MPL-2.0":            {"Mozilla Public License, version 2.0"},
}

// TestDependencies compares go.mod with the list: three direct requirements, each a
// released version, and nothing replaced.
func TestDependencies(t *testing.T) {
	mod := read(t, "go.mod")
	for _, word := range []string{"replace", "exclude", "toolchain", "tool", "ignore", "godebug", "// indirect; "} {
		require.NotRegexp(t, `(?m)^`+word+`\b`, mod)
	}
	direct, sum := 0, read(t, "go.sum")
	all := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`).FindAllStringSubmatch(mod, -1)
	require.Len(t, all, len(dependencies))
	for _, m := range all {
		path, version, indirect := m[1], m[2], m[3] != ""
		require.Contains(t, dependencies, path)
		require.Regexp(t, `^v\d+\.\d+\.\d+$`, version, path)
		require.Contains(t, sum, path+" "+version+" h1:")
		if !indirect {
			direct++
		}
	}
	require.Equal(t, 3, direct)
}

// TestLicences reads the licence of every module that is linked, as it lies in the
// module cache. It asks nobody.
func TestLicences(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test",
		"-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}{{end}}{{end}}", "./...")
	cmd.Env = append(cmd.Environ(), "GOFLAGS=-mod=readonly")
	out, err := cmd.Output()
	require.NoError(t, err)
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		path, dir, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found || seen[path] {
			continue
		}
		seen[path] = true
		require.Contains(t, dependencies, path)
		files, err := filepath.Glob(filepath.Join(dir, "LICENSE*"))
		require.NoError(t, err)
		require.NotEmpty(t, files, path)
		for _, phrase := range phrases[dependencies[path]] {
			require.Contains(t, strings.Join(strings.Fields(read(t, files[0])), " "), phrase, path)
		}
	}
	require.Len(t, seen, len(dependencies), "one of the list is not needed any more")
}
