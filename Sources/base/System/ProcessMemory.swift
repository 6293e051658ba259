import CLinux

/// The memory that this process has from the kernel.
public enum ProcessMemory {
    /// Hands back what is free. The allocator keeps it otherwise, for as long as anything behind it is in use. It takes some
    /// milliseconds: for the moment after much was freed.
    public static func giveBack() { tw_give_back_memory() }
}
