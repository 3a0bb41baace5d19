# The policy of a descheduler from https://github.com/kubernetes-sigs/descheduler, of its own
# Deployment: mount it, and give it --policy-config-file. It moves VMs from nodes whose guests wait
# for a CPU to nodes with CPU to spare.
apiVersion: v1
kind: ConfigMap
metadata:
  name: descheduler-policy
  namespace: {{ .Namespace | toJson }}
data:
  policy.yaml: |
    apiVersion: descheduler/v1alpha2
    kind: DeschedulerPolicy
    # A move by hibernation writes a guest's memory to a claim: few at a time, of which one a node.
    maxNoOfPodsToEvictPerNode: 1
    maxNoOfPodsToEvictTotal: 5
    metricsProviders:
      - source: Prometheus
        prometheus:
          url: {{ annotation "prometheus-url" | default "http://prometheus-operated.monitoring.svc:9090" | toJson }}
    profiles:
      - name: vmlet
        pluginConfig:
          - name: DefaultEvictor
            args:
              # VMs' pods, and no others.
              labelSelector:
                matchLabels:
                  kubevirt.io: virt-launcher
              # Only where another node can take it: a VM that is saved and stays Pending is down.
              nodeFit: true
              # A guest that has just started has its load still to come.
              minPodAge: 15m
              podProtections:
                defaultDisabled:
                  # Every VM's pod has an emptyDir: with its guest's memory in it.
                  - PodsWithLocalStorage
          - name: LowNodeUtilization
            args:
              metricsUtilization:
                source: Prometheus
                prometheus:
                  # The part of the last five minutes in which something waited for a CPU, for each
                  # node, from pressure stall information (node_exporter). Pressure and not use: a node
                  # whose guests use all of it and wait for nothing is a good one. The descheduler wants
                  # a node's name in the label instance, and values from 0 to 1.
                  query: >-
                    clamp_max(max by (instance) (label_replace(
                    rate(node_pressure_cpu_waiting_seconds_total[5m])
                    * on (instance, job) group_left (nodename) node_uname_info,
                    "instance", "$1", "nodename", "(.+)")), 1)
              # Nodes below 5 % take VMs, and those above 20 % give some away.
              thresholds:
                MetricResource: 5
              targetThresholds:
                MetricResource: 20
        plugins:
          balance:
            enabled:
              - LowNodeUtilization
