import CLinux
import Glibc

/// Resources that this process uses, as the kernel reports them.
public struct ProcessFigures: Sendable, Equatable {
    /// Processor time of all threads in nanoseconds, in user and kernel mode.
    public var cpuNanoseconds: UInt64
    /// Physical memory in bytes; nil if /proc does not provide it.
    public var residentBytes: UInt64?
    public var virtualBytes: UInt64?
    /// Number of open descriptors in the descriptor table that has the most. The limit applies to each table (see
    /// `DescriptorTable`).
    public var openDescriptors: Int?
    /// Limit of open descriptors for each table.
    public var maximumDescriptors: Int?

    /// Reads the current figures. This takes some microseconds for each thread and for each thousand descriptors.
    public static func now() -> ProcessFigures {
        let pages = ProcFile.numbers("/proc/self/statm")
        let pageBytes = UInt64(getpagesize())
        return ProcessFigures(
            cpuNanoseconds: Clock.processNanoseconds(), residentBytes: pages.count > 1 ? pages[1] * pageBytes : nil,
            virtualBytes: pages.first.map { $0 * pageBytes }, openDescriptors: DescriptorTable.fullest(),
            maximumDescriptors: DescriptorTable.limit())
    }

    /// Returns the start time of the process in Unix seconds; nil if /proc does not provide it.
    public static func startedAt() -> Int64? {
        // proc_pid_stat(5): the name is in parentheses and may contain any character. Field 3 follows the name. Field
        // 22 is the start time in clock ticks since boot.
        guard let status = ProcFile.text("/proc/self/stat"), let end = status.lastIndex(of: ")"),
            let boot = ProcFile.text("/proc/stat")?.split(separator: "\n").first(where: { $0.hasPrefix("btime ") }),
            let bootedAt = Int64(boot.dropFirst(6))
        else { return nil }
        let fields = status[status.index(after: end)...].split(separator: " ")
        let ticks = Int64(sysconf(Int32(_SC_CLK_TCK)))
        guard fields.count > 19, let began = Int64(fields[19]), ticks > 0 else { return nil }
        return bootedAt + began / ticks
    }
}

extension DescriptorTable {
    /// Maximum number of threads whose descriptor tables `fullest` examines.
    private static let mostThreads = 1024
    /// Maximum number of descriptors that `fullest` counts one by one.
    private static let mostDescriptors = 16_384

    /// Returns the limit of open descriptors for each table.
    static func limit() -> Int? {
        var limit = rlimit()
        // SAFETY: the structure is a local.
        guard unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return nil }
        return Int(clamping: limit.rlim_cur)
    }

    /// Returns the number of open descriptors in the table that has the most.
    ///
    /// Since Linux 6.2, the size of the directory `/proc/PID/fd` is this number, so the table of every thread is
    /// examined. On older kernels the descriptors are counted, but only in the tables of the main thread and of the
    /// calling thread.
    static func fullest() -> Int? {
        if let known = ProcFile.size("/proc/self/fd"), known > 0 {
            var most = known
            ProcFile.eachName("/proc/self/task", atMost: mostThreads) { thread in
                most = max(most, ProcFile.size("/proc/self/task/\(thread)/fd") ?? 0)
            }
            return most
        }
        return ["/proc/self/fd", "/proc/thread-self/fd"].compactMap { table in
            var count = 0
            return ProcFile.eachName(table, atMost: mostDescriptors) { _ in count += 1 } ? count : nil
        }.max()
    }
}

/// Reader of files in /proc, which are short and which the kernel generates on reading.
enum ProcFile {
    private static let mostBytes = 64 << 10

    static func numbers(_ path: String) -> [UInt64] {
        (text(path) ?? "").split { $0 == " " || $0 == "\n" }.compactMap { UInt64($0) }
    }

    static func text(_ path: String) -> String? {
        // SAFETY: Swift passes a C string that lives for the call.
        guard let descriptor = try? systemCall("open", path, { unsafe tw_open(path, O_RDONLY | O_CLOEXEC, 0) }) else {
            return nil
        }
        defer { close(descriptor) }
        // SAFETY: what is filled is below the buffer's count, so the kernel writes inside it, and `count` bytes are
        // written.
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: mostBytes) { buffer, count in
            while count < buffer.count {
                let read = unsafe Glibc.read(
                    descriptor, buffer.baseAddress.map { unsafe $0 + count }, buffer.count - count)
                guard read > 0 else { break }
                count += read
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    static func size(_ path: String) -> Int? {
        var status = stat()
        // SAFETY: Swift passes a C string that lives for the call, and the kernel fills the local structure.
        return unsafe stat(path, &status) == 0 ? Int(status.st_size) : nil
    }

    /// Calls `body` with each name in a directory that does not begin with a dot. Returns false if the directory cannot
    /// be read.
    @discardableResult
    static func eachName(_ path: String, atMost most: Int, _ body: (String) -> Void) -> Bool {
        // SAFETY: the directory is ours and closed at the end; an entry is read before the next call replaces it.
        guard let directory = unsafe opendir(path) else { return false }
        defer { unsafe _ = closedir(directory) }
        var count = 0
        while count < most, let entry = unsafe readdir(directory) {
            let name = unsafe String(cString: tw_entry_name(entry))
            guard !name.hasPrefix(".") else { continue }
            count += 1
            body(name)
        }
        return true
    }
}
