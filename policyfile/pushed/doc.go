// Package pushed lets programs follow a file of policies that is pushed to their fleet
// through Redis, and lets operators push one:
//
//	reporter := fleet.Start(client, redisstore.New(client, redisstore.Options{}), fleet.ReporterOptions{})
//	defer reporter.Close()
//	transport, err := throttle.New(throttle.Config{Store: reporter})
//	…
//	_, err = pushed.Follow(ctx, reporter, policyfile.Options{
//		Path:  "policies.yaml", // until something is pushed
//		Apply: func(f *policyfile.File) error { return transport.SetPolicies(f.Policies) },
//	})
//
// The page on [fleets] describes the checks of a push, and how nodes follow it.
//
// [fleets]: https://github.com/fleetthrottle/throttle/blob/main/docs/fleet.md
package pushed
