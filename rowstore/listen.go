package rowstore

import "github.com/fleetthrottle/throttle/internal/nodestore"

// Listen implements [nodestore.Backend].
func (b *backend) Listen(lane string, wake func()) (stop func(), err error) {
	if n, ok := b.db.(Notifier); ok {
		if stop, err := n.Listen(lane, nodeName(b.node), wake); err == nil {
			return stop, nil
		}
	}
	return nodestore.Poll(wake), nil
}
