// Mutants breaks the library on purpose, one function at a time, and sees whether
// the tests notice. Each mutation of list/ says which promise it breaks, which code it
// changes in the syntax of which function, and which tests should be red;
// docs/measurements/mutants.txt has the last verdict on each.
//
//	go run ./internal/lab/mutants                      all of them
//	go run ./internal/lab/mutants -run 'P11|lease' -list some of them, only named
//	go run ./internal/lab/mutants -write               and keep the verdicts
//	go run ./internal/lab/mutants -table               the kept verdicts, by promise
//
// It works in a copy of the tree, so nothing is ever broken where it is run. It
// fails if a mutation survives that is not explained, if one does not compile, or
// if the tests are red before anything is broken.
package main
