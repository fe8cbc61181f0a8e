// Package browsertest looks at the page of package dashboard in Chromium, which scripts/install-chromium.sh
// installs: by its tests, and by the command pictures, which makes docs/pictures/dashboard*.png.
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

// A Browser is a Chromium without windows.
type Browser struct {
	ctx    context.Context
	cancel []context.CancelFunc
}

// Start starts the browser that the environment variable CHROMIUM names, or else the one on PATH.
func Start() (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}

	allocator, endAllocator := chromedp.NewExecAllocator(context.Background(),
		chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.NoSandbox, // the tests may run as root, and look at pages of their own alone
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
