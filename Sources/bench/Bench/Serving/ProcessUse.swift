import CLinux
import Glibc
import System

/// Processor time that each thread of a process has used so far.
struct ProcessUse {
    struct Thread {
        var name: String
        var nanoseconds: UInt64
    }

    private(set) var threads: [String: Thread] = [:]

    init(_ process: Int32) throws {
        for thread in try DiskDirectory("/proc/\(process)/task").names() {
            let path = "/proc/\(process)/task/\(thread)"
            // A thread may have ended since the list was read.
            guard let name = TextFile.read(path + "/comm"), let used = TextFile.read(path + "/schedstat"),
                let nanoseconds = used.split(separator: " ").first.flatMap({ UInt64($0) })
            else { continue }
            threads[thread] = Thread(name: String(name.prefix { !$0.isNewline }), nanoseconds: nanoseconds)
        }
    }

    /// Returns the nanoseconds of processor time used since an earlier reading of the same process, by threads whose
    /// names begin with `prefix`.
    func nanoseconds(since earlier: ProcessUse, threads prefix: String = "") -> Double {
        var total: UInt64 = 0
        for (number, thread) in threads where thread.name.hasPrefix(prefix) {
            total += thread.nanoseconds - min(thread.nanoseconds, earlier.threads[number]?.nanoseconds ?? 0)
        }
        return Double(total)
    }
}

enum ProcessMemory {
    /// Returns the bytes of a process's private memory, which excludes shared code and files.
    static func privateBytes(_ process: Int32) throws -> Double {
        let kinds = ["Private_Clean", "Private_Dirty"].compactMap { kind in
            TextFile.line(kind, in: "/proc/\(process)/smaps_rollup").flatMap { Double($0.prefix { $0 != " " }) }
        }
        guard kinds.count == 2 else { throw BenchFailure("the memory of process \(process) is not known") }
        return (kinds[0] + kinds[1]) * 1024
    }
}

/// Pinning of processes to processors: compared servers share one processor, and their clients share another.
enum ProcessorPin {
    static let servers = 0
    static let clients = Processors.count - 1

    /// Pins all current threads of the processes. Threads that they start later inherit the pinning.
    static func put(_ processes: [Int32], on processor: Int) throws {
        for process in processes {
            for thread in try DiskDirectory("/proc/\(process)/task").names() {
                // A thread may have ended since the list was read.
                if let number = Int32(thread) { _ = tw_pin_thread(number, Int32(processor)) }
            }
        }
    }
}
