package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetthrottle/throttle/servers/proxy"
)

// proxyMetrics are what Prometheus is told of a proxy, beside what promthrottle tells of its
// policies. Labels are fixed words.
type proxyMetrics struct {
	handler *proxy.Handler
	door    *bounded
	applied func() bool // the file that was seen last is in force, or waits for its grace
}

// Descriptions of the metrics.
var (
	heldDesc    = prometheus.NewDesc("throttle_proxy_held", "Requests that wait in the proxy now.", nil, nil)
	bodiesDesc  = prometheus.NewDesc("throttle_proxy_body_bytes", "Bodies that the proxy has in memory now.", nil, nil)
	openDesc    = prometheus.NewDesc("throttle_proxy_connections", "Connections of callers that are open now.", nil, nil)
	shutDesc    = prometheus.NewDesc("throttle_proxy_connections_refused_total", "Connections of callers that were closed because too many were open.", nil, nil)
	refusedDesc = prometheus.NewDesc("throttle_proxy_refused_total", "Requests that the proxy answered itself, by reason.", []string{"reason"}, nil)
	leftDesc    = prometheus.NewDesc("throttle_proxy_left_total", "Callers that left before their request had an answer.", nil, nil)
	abortedDesc = prometheus.NewDesc("throttle_proxy_aborted_total", "Answers that ended in the middle.", nil, nil)
	linksDesc   = prometheus.NewDesc("throttle_proxy_links_round_total", "Links in answers that lead round the proxy.", nil, nil)
	tunnelsDesc = prometheus.NewDesc("throttle_proxy_tunnels_ended_total", "Idle tunnels that were ended to make room for others.", nil, nil)
	codingDesc  = prometheus.NewDesc("throttle_proxy_unreadable_total", "Answers in br, zstd or another coding that no policy can read.", nil, nil)
	appliedDesc = prometheus.NewDesc("throttle_proxy_file_applied", "Whether the file of policies as it was read last is in force, or waits to be.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (m *proxyMetrics) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, to) }

// Collect implements [prometheus.Collector].
func (m *proxyMetrics) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, float64(v), labels...)
	}
	s := m.handler.Stats()

	var applied int64
	if m.applied() {
		applied = 1
	}

	send(heldDesc, prometheus.GaugeValue, int64(s.Held))
	send(bodiesDesc, prometheus.GaugeValue, s.BodyBytes)
	send(openDesc, prometheus.GaugeValue, m.door.open.Load())
	send(shutDesc, prometheus.CounterValue, m.door.refused.Load())
	send(appliedDesc, prometheus.GaugeValue, applied)
	send(leftDesc, prometheus.CounterValue, s.Left)
	send(abortedDesc, prometheus.CounterValue, s.Aborted)
	send(linksDesc, prometheus.CounterValue, s.LinksRound)
	send(tunnelsDesc, prometheus.CounterValue, s.TunnelsEnded)
	send(codingDesc, prometheus.CounterValue, s.Unreadable)

	for reason, n := range s.Refused {
		send(refusedDesc, prometheus.CounterValue, n, reason)
	}
}
