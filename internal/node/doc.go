// Package node is a [store.Store] for stores that keep rows in one place for many nodes: a
// file, a table of a database. Package ledger decides about rows. This package is what each node
// does around that: callers of the node share steps, wait in lines, watch their starts, hold slots
// under a lease and hear of what other nodes did. A [Backend] is what is left: it loads rows, has
// them decided on, and saves them.
//
// All rows that are decided on together belong to one lane. A node makes one step at a time for each
// lane; callers that come meanwhile share the next step. What a node remembers of its callers
// is changed in steps too, and is put back if a step fails.
package node
