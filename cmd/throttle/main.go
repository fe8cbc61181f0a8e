// Command throttle checks files of policies, and explains what they mean for a request.
// Its README has a transcript.
package main

import (
	"context"
	"os"
	"os/signal"
)

func main() { os.Exit(run(interruptible(), os.Args[1:], os.Stdout, os.Stderr)) }

// interruptible returns a context that ends with the first interrupt. The second one ends the
// program, whatever the program is doing.
func interruptible() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	go func() {
		<-interrupts
		signal.Stop(interrupts)
		cancel()
	}()
	return ctx
}
