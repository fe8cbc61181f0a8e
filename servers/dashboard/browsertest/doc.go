// Package browsertest looks at the page of package dashboard in Chromium, which scripts/install-chromium.sh
// installs: by its tests, and by the command pictures, which makes docs/pictures/dashboard*.png.
package browsertest
