import Console
import FoundationEssentials
import Settings

/// Command `tidewire version`: prints the version of the program.
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
            line.add("swift", Product.swift)
            line.add("os", system)
            line.add("architecture", Self.architecture)
            try terminal.print(line.text)
        } else {
            try terminal.print("\(Product.name) \(Product.version)")
            try terminal.print("Swift \(Product.swift), \(system), \(Self.architecture)")
        }
        return .ok
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
