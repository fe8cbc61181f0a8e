<?php
// Calls a model with Guzzle, at $BASE_URL.
require getenv('GUZZLE') ?: 'GuzzleHttp/autoload.php';

use GuzzleHttp\Client;
use GuzzleHttp\Exception\RequestException;
use GuzzleHttp\Exception\TransferException;
use GuzzleHttp\Psr7\Utils;

$options = ['base_uri' => getenv('BASE_URL') . '/']; // paths are then relative, without a slash before them
if (getenv('TIMEOUT')) {
    $options['timeout'] = (float) getenv('TIMEOUT');
}
if (getenv('PREFER')) {
    $options['headers'] = ['Prefer' => getenv('PREFER')];
}
$client = new Client($options);

function say(array $fields): void
{
    echo json_encode($fields), "\n";
}

function call(Client $client): void
{
    try {
        $answer = $client->post('chat/completions', ['json' => ['model' => 'm']]);
        say(['status' => $answer->getStatusCode(), 'answer' => json_decode($answer->getBody()), 'timing' => $answer->getHeaderLine('Server-Timing')]);
    } catch (TransferException $e) {
        $fields = ['error' => (new ReflectionClass($e))->getShortName(), 'message' => $e->getMessage()];
        if ($e instanceof RequestException && $answer = $e->getResponse()) {
            $fields += ['status' => $answer->getStatusCode(), 'answer' => json_decode($answer->getBody()),
                'retryAfter' => $answer->getHeaderLine('Retry-After'), 'via' => $answer->getHeaderLine('Via')];
        }
        say($fields);
    }
}

function stream(Client $client): Generator
{
    $body = $client->post('chat/completions', ['json' => ['model' => 'm', 'stream' => true], 'stream' => true])->getBody();
    while (!$body->eof()) {
        $line = Utils::readLine($body);
        if (str_starts_with($line, 'data: {')) {
            yield json_decode(substr($line, 6))->choices[0]->delta->content;
        }
    }
}

switch ($argv[1]) {
    case 'calls':
        for ($i = 0; $i < $argv[2]; $i++) {
            call($client);
        }
        break;
    case 'stream':
        foreach (stream($client) as $text) {
            say(['event' => $text]);
        }
        break;
    case 'stop': // in the middle of a stream
        foreach (stream($client) as $text) {
            say(['event' => $text]);
            break;
        }
        break;
    case 'defaults':
        say(['timeout' => $client->getConfig('timeout') ?? 0, 'retries' => 0]);
        break;
}
