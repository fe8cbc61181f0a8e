// Package hidden has what package faulty must not export.
package hidden

// Type is a type.
type Type struct{}

// Method is a method.
func (*Type) Method() {}

// Set is a constraint.
type Set interface{ ~int | ~string }
