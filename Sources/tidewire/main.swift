print("tidewire")
