// Package farthest says how far ahead stores look. It is a package of its own because all
// of them need it, and no user does.
package farthest

import "time"

// Wait is the longest wait that a store books: a start further away than that is refused,
// and a penalty that is longer counts as one of this length.
const Wait = 100 * 365 * 24 * time.Hour
