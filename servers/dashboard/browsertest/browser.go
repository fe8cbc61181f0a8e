// Package browsertest tests the page of package dashboard in Chromium, which
// scripts/install-chromium.sh installs. The command pictures uses it to create
// docs/pictures/dashboard*.png.
package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/chromedp/chromedp"
)

// A Browser is a headless Chromium.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
}

// Start starts the browser that the environment variable CHROMIUM names, by
// default the first on PATH.
func Start() (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}

	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		// Tests may run as root, and visit only their own pages.
		chromedp.NoSandbox,
	)

	ctx, endBrowser := chromedp.NewContext(allocator)
	b := &Browser{ctx, []context.CancelFunc{endBrowser, endAllocator}}

	if err := chromedp.Do(ctx); err != nil {
		b.Close()
		return nil, err
	}

	return b, nil
}

// find returns the path of the browser.
func find() (string, error) {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no chromium: run make browser, or set CHROMIUM")
}

// Close ends the browser.
func (b *Browser) Close() {
	for _, cancel := range b.cancel {
		cancel()
	}
}

// script returns the source of axe-core, which finds accessibility faults.
func script() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(here), "node_modules/axe-core/axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("no axe-core: run make browser (%w)", err)
	}
	return string(text), nil
}

// runAxe lists each violation of WCAG 2.2 (A and AA) and of the best practices
// that axe-core knows.
const runAxe = `axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => ` +
	`v.id + ": " + v.help + ": " + v.nodes.map((n) => n.target.join(" ") + " " + n.failureSummary).join("; "))))`

// Violations returns the accessibility faults of the page as it is now.
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
