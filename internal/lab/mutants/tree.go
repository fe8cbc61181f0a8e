package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A tree is a copy of the module in which things can be broken.
type tree struct{ dir string }

// The scripts of which most mutations of scripts are.
const (
	scripts  = "redisstore/internal/wire"                   // their package
	embeds   = scripts + "/script.go"                       // the file that embeds them
	embedded = "//go:embed lua/*.lua\nvar files embed.FS\n" // how it does
)

// freeScripts changes the tree: its tests read the scripts when they begin, so that a broken script needs no compilation. It
// fails if the file embeds has changed.
func (t tree) freeScripts() error {
	path := filepath.Join(t.dir, filepath.FromSlash(embeds))
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	free := strings.Replace(string(text), embedded,
		fmt.Sprintf("var files = os.DirFS(%q)\n", filepath.Join(t.dir, filepath.FromSlash(scripts))), 1)
	if free == string(text) {
		return fmt.Errorf("%s does not embed the scripts as it did", embeds)
	}
	free = strings.Replace(free, "\"embed\"\n", "\"os\"\n", 1)
	return os.WriteFile(path, []byte(free), 0o644)
}

// copyTree copies the module at root, without its history, to a new folder. The
// owner removes it.
func copyTree(root string) (t tree, err error) {
	t.dir, err = os.MkdirTemp("", "mutants")
	if err != nil {
		return t, err
	}

	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		if d.Name() == ".git" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil // of a second work tree it is a file
		}

		return t.take(root, path, d)
	})

	return t, err
}

// take copies one file of root into the tree, or makes one folder. It leaves out links and whatever else is no regular
// file, and a file that has gone meanwhile.
func (t tree) take(root, path string, d fs.DirEntry) error {
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}

	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	switch {
	case err != nil:
		return err
	case d.IsDir():
		return os.MkdirAll(filepath.Join(t.dir, rel), 0o755)
	case !info.Mode().IsRegular():
		return nil
	}

	// A copy and not a link: a mutation is written into the tree.
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(t.dir, rel), text, info.Mode().Perm())
}

// breakIt makes the change of a mutation in the tree. mend takes it back.
func (t tree) breakIt(m mutation) (mend func() error, err error) {
	path, broken, err := m.broken(t.dir)
	if err != nil {
		return nil, err
	}
	original, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(path, original, 0o644) }, os.WriteFile(path, []byte(broken), 0o644)
}

func (t tree) remove() error { return os.RemoveAll(t.dir) }
