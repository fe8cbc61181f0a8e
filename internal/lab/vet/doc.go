// Package vet tests the exports and imports of this repository's packages. Its tests need the whole source tree, so
// they are not where one package's tests are.
package vet
