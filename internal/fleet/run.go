package fleet

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// settle is how long a fleet may take to come to rest: shares of the quota are
// measured after that.
const settle = 2 * time.Second

// Run runs a fleet and reports what it did. The program must have called
// [Main]. All members have ended when Run returns.
func Run(ctx context.Context, c Config) (Report, error) {
	limit, err := c.check()
	if err != nil {
		return Report{}, err
	}
	o := orders{Config: c}
	var up *Upstream
	if c.Ban > 0 {
		up = NewUpstream(limit.N(), limit.Per(), c.Ban)
		server := Serve(up, c.Handshake)
		defer server.Close()
		o.URL = server.URL
		if cert := server.Certificate(); cert != nil {
			o.Root = cert.Raw
		}
	}
	begin, results, err := o.muster(ctx)
	if err != nil {
		return Report{}, err
	}
	r := report(c, limit, begin, results)
	if up != nil {
		r.saw(up, begin)
	}
	return r, nil
}

// muster starts all members, lets them go at once and collects their results.
func (o orders) muster(ctx context.Context) (time.Time, []result, error) {
	ctx, cancel := context.WithCancel(ctx)
	var members []*process
	defer func() {
		cancel() // ends those that are still there
		for _, p := range members {
			_ = p.cmd.Wait() // reaps; what mattered was read from its output
		}
	}()
	for o.Process = range o.Config.Processes {
		p, err := o.start(ctx)
		if err != nil {
			return time.Time{}, nil, err
		}
		members = append(members, p)
	}
	for _, p := range members {
		if line, err := p.out.ReadString('\n'); line != "ready\n" {
			return time.Time{}, nil, p.failed(err)
		}
	}
	begin := time.Now()
	for _, p := range members {
		if _, err := io.WriteString(p.in, "go\n"); err != nil {
			return begin, nil, p.failed(err)
		}
	}
	results := make([]result, len(members))
	for i, p := range members {
		if err := json.NewDecoder(p.out).Decode(&results[i]); err != nil {
			return begin, nil, p.failed(err)
		}
	}
	return begin, results, nil
}

// A process is a member seen from the program that started it.
type process struct {
	cmd  *exec.Cmd
	in   io.Writer // its end tells the member that it is alone
	out  *bufio.Reader
	errs *bytes.Buffer
}

func (o orders) start(ctx context.Context) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self), errs: &bytes.Buffer{}}
	p.cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	p.cmd.Stderr = p.errs
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// failed says why a member did not do what it should have done.
func (p *process) failed(err error) error {
	if why := p.cmd.Wait(); why != nil {
		err = errors.Join(err, why)
	}
	return fmt.Errorf("fleet: a member failed: %w: %s", err, strings.TrimSpace(p.errs.String()))
}
