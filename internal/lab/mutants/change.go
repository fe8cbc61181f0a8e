package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// broken returns the file of the tree at root that declares the mutation's function, and the text of the file with the
// change. It writes nothing.
func (m *mutation) broken(root string) (path, text string, err error) {
	files, err := os.ReadDir(filepath.Join(root, filepath.FromSlash(m.dir)))
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", m.name, err)
	}

	// The function must stand in one file only, or the change could be made in the wrong place.
	there := 0
	for _, f := range files {
		name := filepath.Join(root, filepath.FromSlash(m.dir), f.Name())
		file, n, err := m.declaredIn(name)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", m.name, err)
		}
		there += n
		if n > 0 {
			path, text = name, file
		}
	}

	if there != 1 {
		return "", "", fmt.Errorf("%s: %s declares %s %d times, not once", m.name, m.dir, m.function, there)
	}

	text, err = m.change.apply(path, text, m.function)
	if err != nil {
		err = fmt.Errorf("%s: %s of %s: %w", m.name, m.function, m.dir, err)
	}

	return path, text, err
}

// declaredIn returns the text of a file, and how often the file declares the function. A file in which the function cannot
// stand has no text, and declares it 0 times. Without a function the file itself counts once.
func (m *mutation) declaredIn(path string) (text string, n int, err error) {
	script, function := splitScript(m.function)
	isGo := filepath.Ext(path) == ".go" && script == "" && !strings.HasSuffix(path, "_test.go")
	isScript := filepath.Ext(path) == ".lua" && (script == "" || script == filepath.Base(path))
	if !isGo && !isScript {
		return "", 0, nil
	}

	file, err := os.ReadFile(path)
	if err != nil {
		return "", 0, err
	}

	text = string(file)
	if function == "" {
		return text, 1, nil
	}
	if isScript {
		return text, luaDeclares(text, function), nil
	}

	// Parsing all files of a package takes long, so look for the bare name first.
	if !strings.Contains(text, function[strings.LastIndex(function, ".")+1:]) {
		return text, 0, nil
	}

	f, err := parseGo(text)
	if err != nil {
		return "", 0, err
	}

	return text, len(f.declared(function)), nil
}

// splitScript splits "turn.lua find" into the script and its function. "turn.lua" alone has no function: it names what
// stands outside of the script's functions. A name without a script is a function of any file.
func splitScript(name string) (script, function string) {
	script, function, _ = strings.Cut(name, " ")
	if !strings.HasSuffix(script, ".lua") {
		return "", name
	}
	return script, function
}

// apply returns the text of a file with the change in that function, which the file must declare. It returns an error if
// the old text is not found as often as the change says, or if the result does not parse.
func (c change) apply(path, text, function string) (string, error) {
	if filepath.Ext(path) == ".lua" {
		_, function := splitScript(function)
		at, err := one(c, luaFind(text, function, c.old))
		if err != nil {
			return "", err
		}

		return text[:at.from] + c.new + text[at.to:], nil
	}

	file, err := parseGo(text)
	if err != nil {
		return "", err
	}

	old, err := parseFragment(c.old)
	if err != nil {
		return "", err
	}

	at, err := one(c, old.find(file.declared(function)[0]))
	if err != nil {
		return "", err
	}

	// Without a new text the old text goes, together with its comma or operator.
	from, to, filled := at.run[0].Pos(), at.run[len(at.run)-1].End(), ""
	if c.new == "" {
		from, to = at.dropped()
	} else {
		made, err := parseFragment(c.new)
		if err != nil {
			return "", err
		}
		if filled, err = made.filledWith(at, text); err != nil {
			return "", err
		}
	}

	// Positions count from 1. The result must parse, or the mutation would be killed by the compiler.
	text = text[:from-1] + filled + text[to-1:]
	_, err = parseGo(text)
	return text, err
}

// one returns the found place that the change is about. It returns an error if the change has no number and there is not
// exactly one place, or if it has a number and there is no such place, or only one place.
func one[P any](c change, found []P) (at P, err error) {
	switch {
	case c.which == 0 && len(found) != 1:
		return at, fmt.Errorf("%q stands there %d times, not once", c.old, len(found))
	case c.which > len(found), c.which > 0 && len(found) == 1:
		return at, fmt.Errorf("%q stands there %d times, and number %d is changed", c.old, len(found), c.which)
	}
	return found[max(0, c.which-1)], nil
}
