import Change
import Embedded
import Replication
import System

/// What one drain of a shape's WAL took.
struct Drain: Sendable {
    var seconds: Double
    var clientSeconds: Double
    var serverSeconds: Double
    /// Of the hub; not known of others.
    var peakBytes: Double?
}

/// Runs the programs that drain, each as a process of its own, measured from its start to its end.
struct Drains {
    let stage: IngestStage
    let place: Workplace

    /// `pg_recvlogical` to nowhere, with the options that the hub gives to pgoutput and nothing that would hold it up.
    func baseline(_ shape: IngestShape, streaming: Bool) throws -> Drain {
        try stage.withSlot(shape) { slot, _ in
            let options = [
                "proto_version=\(streaming ? 2 : 1)", "publication_names=\(shape.publication)", "messages=true",
            ]
            let command =
                [
                    stage.cluster.binaries.path("pg_recvlogical"), "--dbname=\(stage.cluster.url())", "--slot=\(slot)",
                    "--start", "--no-loop", "--file=/dev/null", "--fsync-interval=0",
                    "--endpos=\(stage.end(of: shape))",
                ] + (options + (streaming ? ["streaming=on"] : [])).map { "--option=\($0)" }
            return try measured(command, "pg_recvlogical")
        }
    }

    /// The hub's whole path into an event log, which is then looked through.
    func hub(_ shape: IngestShape, streaming: Bool) throws -> Drain {
        try stage.withSlot(shape) { slot, position in
            place.remove("data")
            let data = try place.directory("data").path
            try DrainWorker.makeLog(dataDirectory: data, source: stage.source, at: position)
            let order = DrainWorker.Order(
                databaseURL: stage.cluster.url(), slot: slot, publication: shape.publication,
                until: stage.end(of: shape), dataDirectory: data, streaming: streaming)
            var drain = try measured(["/proc/self/exe"] + order.words, "hub")
            drain.peakBytes = peak.map { Double($0 * 1024) }
            try DrainVerifier(shape: shape).verify(dataDirectory: data)
            place.remove("data")
            return drain
        }
    }

    private var peak: Int? { TextFile.line("peak_kib", in: place.path + "/hub.out").flatMap { Int($0) } }

    private func measured(_ command: [String], _ name: String) throws -> Drain {
        place.remove(name + ".out")
        let serverBefore = stage.endedProcessesNanoseconds
        let began = Clock.monotonicNanoseconds()
        let process = try ChildProcess(command, output: place.path + "/\(name).out")
        let ending = process.wait(milliseconds: 600_000)
        let ended = Clock.monotonicNanoseconds()
        guard ending == .exited(0) else {
            process.signal(15)
            let words = TextFile.read(place.path + "/\(name).out") ?? ""
            throw BenchFailure("\(name) did not come to the end: \(words.split(separator: "\n").last ?? "")")
        }
        // The walsender ends a little after its client, and its time is known when it has.
        try stage.awaitNoWalsender()
        return Drain(
            seconds: Double(ended - began) / 1e9, clientSeconds: Double(process.usage.cpuNanoseconds) / 1e9,
            serverSeconds: Double(stage.endedProcessesNanoseconds - serverBefore) / 1e9)
    }
}
