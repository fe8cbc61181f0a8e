package filestore

// Bells wake nodes.
type bells interface {
	// listen has wake called when another node rings for this one, until stop is called.
	listen(node int64, wake func()) (stop func(), err error)

	// isDead reports whether a node that listened has died.
	isDead(node int64) bool

	// ring wakes a node, if it listens.
	ring(node int64)

	// ringAll wakes all nodes that listen, but this one.
	ringAll(but int64)
}
