# Swap for pods of the quality of service Burstable, which VMs' pods are: memory that a guest does
# not touch makes room for one that does. Nodes are rebooted one after another.
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 90-worker-swap-online
  labels:
    machineconfiguration.openshift.io/role: worker
spec:
  config:
    ignition: {version: 3.5.0}
    storage:
      files:
        - path: /etc/openshift/kubelet.conf.d/90-swap.conf
          mode: 420 # 0644; Ignition takes decimal numbers
          overwrite: true
          contents:
            source: data:;base64,{{ readAsset "machine-config/kubelet-swap.conf" | b64enc }}
        - path: /usr/local/bin/vmlet-swap-watermarks
          mode: 493 # 0755
          overwrite: true
          contents:
            source: data:;base64,{{ readAsset "machine-config/swap-watermarks.sh" | b64enc }}
    systemd:
      units:
        # The better place: a partition that the installer has made for it. Nothing happens without.
        - name: swap-disk-enable.service
          enabled: true
          contents: |
            [Unit]
            Description=Swap on the partition that is labelled OCPSWAP
            ConditionPathExists=/dev/disk/by-partlabel/OCPSWAP
            DefaultDependencies=no
            Before=kubelet-dependencies.target

            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/usr/bin/sh -c 'swaplabel /dev/disk/by-partlabel/OCPSWAP || mkswap /dev/disk/by-partlabel/OCPSWAP'
            # A higher number is used first: before the file.
            ExecStart=/usr/sbin/swapon --priority 100 /dev/disk/by-partlabel/OCPSWAP
            ExecStop=/usr/sbin/swapoff /dev/disk/by-partlabel/OCPSWAP

            [Install]
            RequiredBy=kubelet-dependencies.target
        # A file that the administrator has made.
        - name: ocpswap-file-enable.service
          enabled: true
          contents: |
            [Unit]
            Description=Swap in the file /var/tmp/ocpswap.file
            ConditionPathExists=/var/tmp/ocpswap.file
            RequiresMountsFor=/var/tmp
            Before=kubelet-dependencies.target

            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/usr/sbin/swapon --priority 10 /var/tmp/ocpswap.file
            ExecStop=/usr/sbin/swapoff /var/tmp/ocpswap.file

            [Install]
            RequiredBy=kubelet-dependencies.target
        - name: vmlet-swap-watermarks.service
          enabled: true
          contents: |
            [Unit]
            Description=Begin to swap before the kubelet begins to evict
            Before=kubelet.service

            [Service]
            Type=oneshot
            RemainAfterExit=yes
            ExecStart=/usr/local/bin/vmlet-swap-watermarks

            [Install]
            WantedBy=multi-user.target
        # What keeps the node alive, the kubelet and the runtime first, is never swapped out, and
        # comes first at the disk that pods are swapped to.
        - name: system.slice
          dropins:
            - name: 90-vmlet-swap.conf
              contents: |
                [Slice]
                MemorySwapMax=0
                CPUWeight=800
                IOWeight=800
                IODeviceLatencyTargetSec=/var 5ms
        - name: kubepods.slice
          dropins:
            - name: 90-vmlet-swap.conf
              contents: |
                [Slice]
                IOWeight=100
                IODeviceLatencyTargetSec=/var 50ms
