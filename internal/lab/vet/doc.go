// Package vet tests what the packages of this repository export and import. Its tests need the whole source tree, so
// they are not where one package's tests are.
package vet
