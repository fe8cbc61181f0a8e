package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// script returns the text of axe-core, which finds what people cannot use who see or move badly.
func script() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("no axe-core: run make browser (%w)", err)
	}
	return string(text), nil
}

// runAxe tells of each violation of WCAG 2.2 (A and AA) and of the practices that axe-core knows
// beyond that.
const runAxe = `axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => ` +
	`v.id + ": " + v.help + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).join("; "))))`

// Violations returns what people cannot use on the page as it is now who see or move badly.
func (p *Page) Violations() ([]string, error) {
	axe, err := script()
	if err != nil {
		return nil, err
	}
	if _, err := Value[bool](p, axe+"; true"); err != nil {
		return nil, err
	}

	text, err := Value[string](p, runAxe)
	if err != nil {
		return nil, err
	}

	var all []string
	err = json.NewDecoder(strings.NewReader(text)).Decode(&all)
	return all, err
}
