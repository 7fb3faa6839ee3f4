package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"shaver/internal/base/files"
)

// Night is what is reported about a night of shaver nightly. Nil means that a value is
// unknown.
type Night struct {
	Number, Generation       int
	Finished                 time.Time
	Published                bool
	LastPublished            time.Time // zero = none
	Seconds, CoreSeconds     float64
	Rows, Evaluations        int64
	RelativeError, Reduction *float64
	AUC, PrunedAUC, AUCDrop  *float64
	LogLoss, PrunedLogLoss   *float64
	LogLossRise              *float64
	RMSE, PrunedRMSE         *float64
	RMSERise                 *float64
	Churn, PlainChurn        *float64
	Sparsity                 float64
	Bytes                    int64
}

// Night adds the metrics of the last night, or changes them. It must not be called
// concurrently.
func (s *Set) Night(n *Night) { s.night.set(s.registry, n) }

// WriteNight writes the metrics of a night to the file at path, for the textfile collector of
// Prometheus's node exporter. The file appears whole.
func WriteNight(path string, n *Night) error {
	registry := prometheus.NewRegistry()
	new(nightSet).set(registry, n)
	return prometheus.WriteToTextfile(path, registry)
}

// NightWritten reports whether the file at path is one that WriteNight wrote.
func NightWritten(path string) bool {
	const head = "# HELP shaver_night_"
	return string(files.Beginning(path, int64(len(head)))) == head
}

// nightSet holds the metrics of a night by name. A value that is unknown has no metric.
type nightSet map[string]prometheus.Gauge

func (s *nightSet) set(registry *prometheus.Registry, n *Night) {
	if *s == nil {
		*s = nightSet{}
	}
	gauge := func(name, help, model string, value *float64) {
		key := name + model
		g := (*s)[key]
		if value == nil {
			if g != nil {
				registry.Unregister(g)
				delete(*s, key)
			}
			return
		}
		if g == nil {
			var labels prometheus.Labels
			if model != "" {
				labels = prometheus.Labels{"model": model}
			}
			g = prometheus.NewGauge(prometheus.GaugeOpts{Name: "shaver_night_" + name, Help: help, ConstLabels: labels})
			registry.MustRegister(g)
			(*s)[key] = g
		}
		g.Set(*value)
	}
	known := func(v float64) *float64 { return &v }
	when := func(t time.Time) *float64 {
		if t.IsZero() {
			return nil
		}
		return known(float64(t.UnixMilli()) / 1000)
	}
	published := 0.0
	if n.Published {
		published = 1
	}
	gauge("number", "Number of the last night, from 1 on.", "", known(float64(n.Number)))
	gauge("finished_timestamp_seconds", "Unix time at which the last night ended.", "", when(n.Finished))
	gauge("published", "Whether the last night was published, 1 or 0.", "", known(published))
	gauge("published_timestamp_seconds", "Unix time at which the published night ended.", "", when(n.LastPublished))
	gauge("seconds", "Seconds that the steps of the last night took.", "", known(n.Seconds))
	gauge("core_seconds", "Core-seconds that the steps of the last night took.", "", known(n.CoreSeconds))
	gauge("rows", "Rows that the scores stand for.", "", known(float64(n.Rows)))
	gauge("evaluations", "Rows computed for the scores, each counted once for each model.", "", known(float64(n.Evaluations)))
	gauge("generation", "Number of paired jobs since the last full one.", "", known(float64(n.Generation)))
	gauge("relative_error", "Error of the scores compared with a full job, relative to the scores.", "", n.RelativeError)
	gauge("variance_reduction", "Reduction of the variance by pairing.", "", n.Reduction)
	gauge("auc", "AUC of the full and of the pruned model on the split of the check.", "full", n.AUC)
	gauge("auc", "AUC of the full and of the pruned model on the split of the check.", "pruned", n.PrunedAUC)
	gauge("auc_drop", "AUC of the full model minus that of the pruned one.", "", n.AUCDrop)
	gauge("log_loss", "LogLoss of the full and of the pruned model on the split of the check, nat.", "full", n.LogLoss)
	gauge("log_loss", "LogLoss of the full and of the pruned model on the split of the check, nat.", "pruned", n.PrunedLogLoss)
	gauge("log_loss_rise", "LogLoss of the pruned model minus that of the full one, nat.", "", n.LogLossRise)
	gauge("rmse", "RMSE of the full and of the pruned model on the split of the check, if labels are numbers.", "full", n.RMSE)
	gauge("rmse", "RMSE of the full and of the pruned model on the split of the check, if labels are numbers.", "pruned", n.PrunedRMSE)
	gauge("rmse_rise", "RMSE of the pruned model minus that of the full one, if labels are numbers.", "", n.RMSERise)
	gauge("churn", "Portion of the kept entries that changed since the published night.", "", n.Churn)
	gauge("plain_churn", "The same as it would be without hysteresis.", "", n.PlainChurn)
	gauge("sparsity", "Portion of the entries that are dropped.", "", known(n.Sparsity))
	gauge("bytes", "Bytes of the pruned model's file.", "", known(float64(n.Bytes)))
}
