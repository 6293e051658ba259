import Bytes

/// Answer of a worker process to one line: a JSON object of whole numbers and texts, on one line.
public struct WorkerAnswer: Sendable, Equatable {
    public var numbers: [String: Int64] = [:]
    public var texts: [String: String] = [:]

    public init() {}

    public init(failure: String) { texts["error"] = failure }

    public var failure: String? { texts["error"] }

    public var line: [UInt8] {
        var writer = ByteWriter()
        writer.append("{")
        for (name, number) in numbers.sorted(by: { $0.key < $1.key }) {
            appendName(name, to: &writer)
            writer.append(decimal: number)
        }
        for (name, text) in texts.sorted(by: { $0.key < $1.key }) {
            appendName(name, to: &writer)
            JSONText.appendString(text, to: &writer)
        }
        writer.append("}\n")
        return writer.copied()
    }

    private func appendName(_ name: String, to writer: inout ByteWriter) {
        if writer.count > 1 { writer.append(",") }
        JSONText.appendString(name, to: &writer)
        writer.append(":")
    }

    public init?(line: [UInt8]) {
        do throws(ByteError) {
            // SAFETY: any byte is a valid UInt8, and the span lives as long as the array.
            var scanner = unsafe JSONScanner(line.span.bytes)
            guard try scanner.next() == .beginObject else { return nil }
            while try scanner.next() == .name {
                let name = scanner.text
                switch try scanner.next() {
                case .number: numbers[name] = scanner.integer(Int64.self)
                case .string: texts[name] = scanner.text
                default: return nil
                }
            }
        } catch {
            return nil
        }
    }
}
