package metrics

import (
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Metric is what one is called and means.
type Metric struct {
	Name, Help string
	// Type is "counter", "gauge" or "summary".
	Type   string
	Labels []string

	desc *prometheus.Desc
}

// metricList makes metrics, and lists them in the order in which they were made.
type metricList struct{ all []Metric }

func (l *metricList) counter(name, help string, labels ...string) Metric {
	return l.add("counter", name, help, labels)
}

func (l *metricList) gauge(name, help string, labels ...string) Metric {
	return l.add("gauge", name, help, labels)
}

func (l *metricList) summary(name, help string, labels ...string) Metric {
	return l.add("summary", name, help, labels)
}

func (l *metricList) add(kind, name, help string, labels []string) Metric {
	m := Metric{Name: name, Help: help, Type: kind, Labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	l.all = append(l.all, m)
	return m
}

// maxLabel bounds a label's value, in bytes: the longest that make sense are
// Kubernetes' names.
const maxLabel = 253

// labelValue is what of a text may be a label's value: UTF-8, and not too long.
func labelValue(text string) string {
	if len(text) > maxLabel {
		text = text[:maxLabel]
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "?")
	}
	return text
}

// sink takes metrics, from any goroutine.
type sink chan<- prometheus.Metric

// put sends a value with these labels' values.
func (s sink) put(m Metric, value float64, labels ...string) {
	for i := range labels {
		labels[i] = labelValue(labels[i])
	}
	kind := prometheus.GaugeValue
	if m.Type == "counter" {
		kind = prometheus.CounterValue
	}
	made, err := prometheus.NewConstMetric(m.desc, kind, value, labels...)
	if err != nil {
		made = prometheus.NewInvalidMetric(m.desc, err)
	}
	s <- made
}

// summary sends a sum and of how many.
func (s sink) summary(m Metric, count uint64, sum float64) {
	made, err := prometheus.NewConstSummary(m.desc, count, sum, nil)
	if err != nil {
		made = prometheus.NewInvalidMetric(m.desc, err)
	}
	s <- made
}

// flag is 1 for what is so.
func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
