package fake

import "time"

// A window remembers the moments that may still count, oldest first.
type window []time.Time

// after forgets everything up to and including t and returns how many moments
// are left. A call at exactly one window's length after another does not share
// an interval with it.
func (w *window) after(t time.Time) int {
	i := 0
	for i < len(*w) && !(*w)[i].After(t) {
		i++
	}
	*w = (*w)[i:]
	return len(*w)
}

// add counts t, which is not before any other moment of the window.
func (w *window) add(t time.Time) { *w = append(*w, t) }

// at finds a window in a map of windows, or puts an empty one there.
func at[K comparable](windows map[K]*window, key K) *window {
	w := windows[key]
	if w == nil {
		w = new(window)
		windows[key] = w
	}
	return w
}
