import FoundationEssentials
import Server

/// `tidewire version`
struct VersionCommand: Command {
    let name = "version"
    let summary = "Print the version of tidewire."
    let discussion = "Prints the version of this program, of the Swift it was built with, and of the system it runs on."
    let options: [Option] = [.json]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let system = ProcessInfo.processInfo.operatingSystemVersionString
        if arguments.has(.json) {
            var line = JSONLine()
            line.add("version", Product.version)
            line.add("swift", Self.swift)
            line.add("os", system)
            line.add("architecture", Self.architecture)
            try terminal.print(line.text)
        } else {
            try terminal.print("\(Product.name) \(Product.version)")
            try terminal.print("Swift \(Self.swift), \(system), \(Self.architecture)")
        }
        return .ok
    }

    /// The language does not tell its exact version to programs; the compiler's conditions tell it closely enough.
    private static var swift: String {
        #if compiler(>=6.4)
            "6.4 or later"
        #elseif compiler(>=6.3)
            "6.3"
        #else
            "6.2"
        #endif
    }

    private static var architecture: String {
        #if arch(x86_64)
            "x86_64"
        #elseif arch(arm64)
            "aarch64"
        #else
            "other"
        #endif
    }
}
