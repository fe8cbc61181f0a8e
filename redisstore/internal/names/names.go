// Package names says what the keys and channels of a namespace are called.
package names

import "strings"

var escape = strings.NewReplacer("{", "%7B", "}", "%7D", "%", "%25")

// Escape keeps a text from beginning or ending a hash tag. No two texts become one.
func Escape(text string) string { return escape.Replace(text) }
