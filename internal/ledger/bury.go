package ledger

// Nodes returns the nodes that have a lease in the row.
func (r *Row) Nodes() (all []int64) {
	for i := range r.leases {
		all = append(all, r.leases[i].node)
	}
	return all
}

// Bury ends the lease of a node that is known to be dead. The next request forgets what the node
// held and waited for.
func (r *Row) Bury(node int64) {
	for i := range r.leases {
		if r.leases[i].node == node {
			r.leases[i].until = 0
		}
	}
}
