import CLinux

/// Memory that the kernel has given to this process.
public enum ProcessMemory {
    /// Returns free memory to the kernel. The allocator by itself keeps free memory as long as any block behind it is
    /// in use. This takes some milliseconds, so call it only after much memory was freed.
    public static func giveBack() { tw_give_back_memory() }
}
