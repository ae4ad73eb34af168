package options

import (
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
)

// The alpha options (--log-*-split-stream, --log-*-info-buffer-size) need a
// feature gate that no flag of the incumbent can set, so a nil gate refuses
// them as it does; contextual logging is on by default in both.

func validateLogging(c *logsapi.LoggingConfiguration) error {
	if errs := logsapi.Validate(c, nil, nil); len(errs) > 0 {
		return errs.ToAggregate()
	}
	return nil
}

// ApplyLogging makes klog, slog and the standard log package write as the
// logging flags say. It changes the whole process, may be called once, and
// before there are goroutines that log. The error is about the flags.
func (o Options) ApplyLogging() error {
	return logsapi.ValidateAndApply(o.logging, nil)
}
