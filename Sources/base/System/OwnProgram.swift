import CLinux
import Glibc

/// The program that this process runs, and those that are installed beside it.
public enum OwnProgram {
    /// The file that this process runs; nil where the kernel does not say.
    public static let path: String? = {
        // SAFETY: the kernel writes at most as many bytes as there are, and only those are read.
        unsafe withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(PATH_MAX)) { room in
            guard let start = room.baseAddress else { return nil }
            let count = unsafe readlink("/proc/self/exe", start, room.count)
            guard count > 0 else { return nil }
            return unsafe String(decoding: UnsafeRawBufferPointer(start: start, count: count), as: UTF8.self)
        }
    }()

    /// The words behind its name. `CommandLine` reads /proc for them, and has none where that is not mounted: any command would
    /// be the one without words there.
    public static var words: [String] {
        (1..<max(1, tw_argument_count())).map { place in
            // SAFETY: the text ends in a zero byte, and lives as long as the process.
            unsafe String(cString: tw_argument(place))
        }
    }

    /// The path of another program in the same directory, whether or not it is there.
    public static func beside(_ name: String) -> String? {
        guard let path, let slash = path.lastIndex(of: "/") else { return nil }
        return path[...slash] + name
    }

    /// This process runs another program from here on, with the same streams and environment; the first word is its path.
    public static func become(_ words: [String]) throws(SystemError) -> Never {
        precondition(!words.isEmpty, "a program has a name")
        let list = CStringArray(words)
        // SAFETY: the list ends in a null pointer and lives as long as the closure, and the call keeps none of it.
        _ = try systemCall("execute", words[0]) { unsafe execv(words[0], list.mutable) }
        preconditionFailure("execv returns only when it failed")
    }
}
