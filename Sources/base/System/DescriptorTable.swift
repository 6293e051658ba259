import CLinux
import Glibc
import Synchronization

/// Table of open file descriptors that a thread uses. Usually all threads of a process share one table.
public enum DescriptorTable {
    /// Number of the descriptor table that the calling thread uses; 0 for the shared one.
    public static var current: UInt32 { tw_descriptor_table() }

    private static let lastNumber = Atomic<UInt32>(0)

    /// Gives the calling thread its own table, in which only the descriptors 0–2 and `kept` stay open.
    ///
    /// The limit of open files applies to each table, so each thread that calls this has the whole limit for itself.
    /// Afterwards a descriptor number means different files on different threads. `OwnedDescriptor` closes each
    /// descriptor in its own table.
    public static func leaveShared(keeping kept: [Int32]) throws(SystemError) {
        precondition(current == 0, "a thread leaves the shared table once")
        // The thread that works for the shared table must be started by a thread that uses this table.
        try SharedTableThread.start()
        _ = try systemCall("unshare", "descriptor table") { tw_unshare_descriptors() }
        tw_number_descriptor_table(lastNumber.add(1, ordering: .relaxed).newValue)
        var first: UInt32 = 3
        for descriptor in Set(kept).sorted() where descriptor >= 3 {
            let number = UInt32(descriptor)
            if number > first { _ = tw_close_range(first, number - 1) }
            first = number + 1
        }
        _ = tw_close_range(first, .max)
    }

    /// Raises the limit of open files as far as the kernel permits this process. Returns the resulting limit.
    @discardableResult
    public static func raiseLimit() -> Int {
        var limit = rlimit()
        // SAFETY: the structure is a local.
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return 1024 }
        if limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max
            _ = unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        }
        return Int(clamping: limit.rlim_cur)
    }

    /// Returns a second descriptor for the same open file; nil if the kernel refuses.
    public static func duplicate(_ descriptor: Int32) -> Int32? {
        let copy = dup(descriptor)
        return copy >= 0 ? copy : nil
    }

    // MARK: Work for another table

    private static let leftToDo = Mutex<[UInt32: [@Sendable () -> Void]]>([:])
    private static let leftCount = Atomic<Int>(0)

    /// Runs the work on a thread that uses the table: immediately if the calling thread does. A separate thread does
    /// the work for the shared table. For any other table, its own thread does the work when it next opens a
    /// descriptor.
    public static func perform(in table: UInt32, _ work: @escaping @Sendable () -> Void) {
        if table == current { return work() }
        if table == 0 { return SharedTableThread.perform(work) }
        leftToDo.withLock { $0[table, default: []].append(work) }
        leftCount.add(1, ordering: .releasing)
    }

    /// Runs work that other threads have left for the calling thread's table.
    static func runPendingWork() {
        guard leftCount.load(ordering: .acquiring) > 0, current > 0 else { return }
        let works = leftToDo.withLock { $0.removeValue(forKey: current) } ?? []
        leftCount.subtract(works.count, ordering: .relaxed)
        for work in works { work() }
    }
}

/// Open descriptor with one owner. It is closed in the table in which it was opened, even if the owner is released on a
/// thread with another table. In that table, the same number belongs to another file.
struct OwnedDescriptor: ~Copyable, Sendable {
    private let value: Int32
    private let table: UInt32
    /// True if a lock on the file must be released before the file is closed.
    ///
    /// A child that was forked but has not yet executed its program shares the lock. If the descriptor were only
    /// closed, that child would keep the lock.
    private let isLocked: Bool

    init(_ value: Int32, isLocked: Bool = false) {
        self.value = value
        self.isLocked = isLocked
        table = DescriptorTable.current
        DescriptorTable.runPendingWork()
    }

    /// Number of the descriptor. Only a thread that uses the descriptor's table may use it.
    var number: Int32 {
        assert(table == DescriptorTable.current, "a descriptor is used in the table where it was opened")
        return value
    }

    /// Number of the descriptor, for a descriptor that is kept in every table.
    var numberInEveryTable: Int32 { value }

    deinit {
        DescriptorTable.perform(in: table) { [value, isLocked] in
            if isLocked { _ = tw_flock(value, LOCK_UN) }
            _ = close(value)
        }
    }
}

/// Thread that closes descriptors of the shared table when their owner was released by a thread with its own table. It
/// runs until the process ends.
private enum SharedTableThread {
    private static let works = Mutex<[@Sendable () -> Void]>([])
    private static let bell = Pulse()
    private static let thread = Mutex<BackgroundThread?>(nil)

    static func start() throws(SystemError) {
        try thread.withLock { thread throws(SystemError) in
            if thread == nil { thread = try BackgroundThread("descriptors", run) }
        }
    }

    static func perform(_ work: @escaping @Sendable () -> Void) {
        works.withLock { $0.append(work) }
        bell.beat()
    }

    private static func run() {
        var seen: UInt64 = 0
        while true {
            seen = bell.wait(beyond: seen, untilMonotonic: .max >> 1)
            let due = works.withLock { works in
                defer { works = [] }
                return works
            }
            for work in due { work() }
        }
    }
}
